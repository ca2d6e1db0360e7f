import java.util.Map;

/** A job of the kind of `Pi`, as a function, and as a program that reads its event from standard input. */
public final class Job {
	private static long calls;

	/** What is heavy about the start. */
	static {
		try {
			Pi.load();
		} catch (java.io.IOException e) {
			throw new ExceptionInInitializerError(e);
		}
		for (int seed = 0; seed < 3; seed++) {
			Pi.estimate(seed);
		}
	}

	public Map<String, Object> handle(Map<String, Object> event) {
		return job(((Number) event.get("number")).longValue());
	}

	private static Map<String, Object> job(long number) {
		var begun = System.nanoTime();
		var pi = Pi.estimate(number);
		if (Math.abs(pi - Math.PI) > 0.1) {
			throw new IllegalStateException("π is " + pi);
		}
		var below = number % 100;
		var total = below * (below - 1) / 2;
		return Map.of("number", number, "total", total, "calls", ++calls, "begun", begun, "ended", System.nanoTime());
	}

	public static void main(String[] args) throws java.io.IOException {
		var event = new String(System.in.readAllBytes());
		var done = job(Long.parseLong(event.replaceAll("\\D", "")));
		var text = new StringBuilder();
		done.forEach((name, value) -> text.append(text.isEmpty() ? "{" : ", ").append('"' + name + "\": " + value));
		System.out.println(text.append('}'));
	}
}
