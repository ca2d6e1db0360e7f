import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

/** Fills so many MB, starts so many threads, reads, checks and loads so many of the JDK's classes. With a port it waits
    then until its connection there is at its end, which it is in clones. Prints a line, and ends when its standard
    input does. */
public class Main {
	static byte[][] live;

	public static void main(String[] arguments) throws Exception {
		int[] numbers = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
		live = new byte[numbers[0]][];
		for (int i = 0; i < live.length; i++) { live[i] = new byte[1 << 20]; Arrays.fill(live[i], (byte) i); }
		ExecutorService pool = Executors.newCachedThreadPool();
		CountDownLatch started = new CountDownLatch(numbers[1]);
		for (int i = 0; i < numbers[1]; i++) pool.submit(() -> { started.countDown(); started.await(); return 0; });
		started.await();
		if (numbers[2] > 0) load(numbers[2]);
		if (numbers.length > 3) new Socket("127.0.0.1", numbers[3]).getInputStream().read();
		System.out.println(pool.submit(() -> 1).get());
		while (System.in.read() >= 0) { }
		System.exit(0);
	}

	static void load(int count) throws Exception {
		Path root = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules/java.base");
		var digest = java.security.MessageDigest.getInstance("SHA-512");
		try (var files = Files.walk(root)) {
			var classes = files.map(Path::toString).filter(name -> name.endsWith(".class") && !name.contains("module-info"));
			var names = classes.sorted().limit(count).iterator();
			while (names.hasNext()) {
				String name = names.next();
				digest.update(Files.readAllBytes(root.resolve(name)));
				Class.forName(name.substring("/modules/java.base/".length(), name.length() - 6).replace('/', '.'), false, null);
			}
		}
	}
}
