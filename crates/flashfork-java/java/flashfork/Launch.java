package flashfork;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;

/**
 * Makes a template of a program that knows nothing of clones, and runs it in each:
 * {@code flashfork warm --threads NAME -- java -cp app.jar flashfork.Launch MAIN [ARGUMENT...]}.
 *
 * <p>With arguments the program is warmed by running {@code MAIN} with these, to its end. Without, its class is loaded
 * and initialised, and nothing run. In a clone {@code MAIN} runs with the clone's arguments.
 */
public final class Launch {
	private Launch() {}

	/**
	 * Warms a program, and goes on in each clone.
	 *
	 * @param arguments the name of its main class, and what it is warmed with
	 * @throws Throwable what the program throws
	 */
	public static void main(String[] arguments) throws Throwable {
		if (arguments.length == 0) {
			System.err.println("flashfork.Launch: name the program's main class");
			System.exit(2);
		}
		MethodHandle main = main(arguments[0]);
		String[] warmUp = Arrays.copyOfRange(arguments, 1, arguments.length);
		String[] plain = warmUp.clone();
		if (warmUp.length > 0) {
			main.invokeExact(warmUp);
		}
		String[] given = Flashfork.ready(plain);
		// Started plainly it has done what there is to do.
		if (given != plain || warmUp.length == 0) {
			main.invokeExact(given);
		}
	}

	private static MethodHandle main(String name) throws ReflectiveOperationException {
		Class<?> type;
		try {
			type = Class.forName(name, true, ClassLoader.getSystemClassLoader());
		} catch (ClassNotFoundException e) {
			System.err.println("flashfork.Launch: there is no class " + name + " on the class path");
			System.exit(1);
			throw e;
		}
		try {
			Method method = type.getMethod("main", String[].class);
			if (Modifier.isStatic(method.getModifiers()) && method.getReturnType() == void.class) {
				// The class need not be public.
				method.setAccessible(true);
				return MethodHandles.lookup().unreflect(method);
			}
		} catch (NoSuchMethodException e) {
			// As of one that is no such method.
		}
		System.err.println("flashfork.Launch: " + name + " has no public static void main(String[])");
		System.exit(1);
		throw new NoSuchMethodException(name);
	}
}
