import java.io.File;
import java.nio.file.*;
import java.util.*;

/** Knows nothing of clones. What it is asked for is its first argument. */
class Program {
	static int runs;

	public static void main(String[] arguments) throws Exception {
		runs++;
		System.out.println(runs + " " + Arrays.toString(arguments) + " " + System.getenv("OF_CALLER") + " "
				+ System.getenv().containsKey("OF_TEMPLATE") + " " + new ProcessBuilder().environment().get("OF_CALLER"));
		switch (arguments.length == 0 ? "" : arguments[0]) {
			case "exit": System.exit(7);
			case "throw": throw new IllegalStateException("thrown by the program");
			case "where":
				System.out.println(System.getProperty("user.dir") + " " + new File("x").getAbsolutePath() + " "
						+ Path.of("x").toAbsolutePath() + " " + new File("x").exists() + " " + Files.exists(Path.of("x")));
				break;
			case "waits": System.in.read();
		}
	}
}
