import java.io.File;
import java.security.DrbgParameters;
import java.security.SecureRandom;
import java.util.*;
import java.util.concurrent.*;
import java.util.random.RandomGenerator;

/** Draws from every generator of the class library, in the template, and early and late in each clone. */
public class Draws {
	static final Map<String, SecureRandom> SECURE = new LinkedHashMap<>();
	static final SynchronousQueue<List<String>> ASKS = new SynchronousQueue<>(), ANSWERS = new SynchronousQueue<>();

	static String hex(SecureRandom from) {
		byte[] bytes = new byte[20];
		from.nextBytes(bytes);
		StringBuilder text = new StringBuilder();
		for (byte one : bytes) text.append(String.format("%02x", one));
		return text.toString();
	}

	static SecureRandom drbg() throws Exception {
		return SecureRandom.getInstance("DRBG",
				DrbgParameters.instantiation(128, DrbgParameters.Capability.RESEED_ONLY, null));
	}

	/** One line for each generator. */
	static List<String> draw(String where) throws Exception {
		List<String> all = new ArrayList<>();
		for (Map.Entry<String, SecureRandom> one : SECURE.entrySet()) all.add(one.getKey() + " " + hex(one.getValue()));
		for (String name : new String[] {"NativePRNG", "NativePRNGNonBlocking", "SHA1PRNG", "DRBG"}) {
			all.add("new " + name + " " + hex(SecureRandom.getInstance(name)));
		}
		all.add("ThreadLocalRandom " + ThreadLocalRandom.current().nextLong());
		all.add("Math " + Math.random());
		all.add("StrictMath " + StrictMath.random());
		all.add("new Random " + new Random().nextLong());
		all.add("new SplittableRandom " + new SplittableRandom().nextLong());
		all.add("UUID " + UUID.randomUUID());
		List<Integer> cards = new ArrayList<>();
		for (int i = 0; i < 52; i++) cards.add(i);
		Collections.shuffle(cards);
		all.add("shuffle " + cards.toString().replace(" ", ""));
		for (String factory : new String[] {"L64X128MixRandom", "Xoshiro256PlusPlus"}) {
			all.add("new " + factory + " " + RandomGenerator.of(factory).nextLong());
		}
		for (int i = 0; i < all.size(); i++) all.set(i, where + " " + all.get(i));
		return all;
	}

	static void print(List<String> lines) {
		for (String line : lines) System.out.println(line);
	}

	public static void main(String[] arguments) throws Exception {
		SECURE.put("NativePRNG", new SecureRandom());
		SECURE.put("NativePRNGBlocking", SecureRandom.getInstance("NativePRNGBlocking"));
		SECURE.put("SHA1PRNG", SecureRandom.getInstance("SHA1PRNG"));
		for (String mechanism : new String[] {"Hash_DRBG", "HMAC_DRBG", "CTR_DRBG"}) {
			java.security.Security.setProperty("securerandom.drbg.config", mechanism);
			SECURE.put(mechanism, drbg());
		}
		Random own = new Random(42);
		own.nextLong();
		Thread other = new Thread(() -> {
			try {
				print(draw("template's thread"));
				for (;;) ANSWERS.put(draw(ASKS.take().get(0)));
			} catch (Exception e) {
				throw new Error(e);
			}
		});
		other.setDaemon(true);
		other.start();
		ThreadLocalRandom.current().nextLong();
		while (other.getState() != Thread.State.WAITING) Thread.sleep(1);
		print(draw("template"));
		flashfork.Flashfork.ready(arguments);
		List<String> early = draw("early");
		ASKS.put(List.of("thread early"));
		List<String> inThread = ANSWERS.take();
		Thread.sleep(150);
		print(early);
		print(inThread);
		print(draw("late"));
		ASKS.put(List.of("thread late"));
		print(ANSWERS.take());
		FutureTask<List<String>> born = new FutureTask<>(() -> draw("new thread"));
		new Thread(born).start();
		print(born.get());
		Random again = new Random(42);
		again.nextLong();
		System.err.println(own.nextLong() == again.nextLong());
		System.err.println(ProcessHandle.current().isAlive()
				&& new File("/proc/self").getCanonicalPath().equals("/proc/" + ProcessHandle.current().pid()));
	}
}
