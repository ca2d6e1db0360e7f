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
            case "waits": System.in.read();
        }
    }
}
