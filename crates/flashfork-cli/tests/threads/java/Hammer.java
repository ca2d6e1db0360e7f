import java.security.SecureRandom;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicIntegerArray;

/** Threads that draw without end, wherever they are stopped. Each prints what it has drawn since the program was warm. */
public class Hammer {
	static final int THREADS = 4;
	static final AtomicIntegerArray LENGTHS = new AtomicIntegerArray(THREADS);
	static volatile boolean stop;

	static void draw(StringBuilder to, SecureRandom[] secure) {
		for (SecureRandom one : secure) to.append(Long.toHexString(one.nextLong())).append(' ');
		to.append(Long.toHexString(ThreadLocalRandom.current().nextLong())).append(' ');
		to.append(Long.toHexString(Double.doubleToLongBits(Math.random()))).append(' ');
		to.append(Long.toHexString(new Random().nextLong())).append('\n');
	}

	/** Until each thread has drawn so much more. */
	static int[] goOn(int more) throws Exception {
		int[] lengths = new int[THREADS];
		for (int i = 0; i < THREADS; i++) lengths[i] = LENGTHS.get(i);
		for (int i = 0; i < THREADS; i++) while (LENGTHS.get(i) < lengths[i] + more) Thread.sleep(1);
		return lengths;
	}

	public static void main(String[] arguments) throws Exception {
		SecureRandom[] secure = {
			new SecureRandom(), SecureRandom.getInstance("SHA1PRNG"), SecureRandom.getInstance("DRBG")
		};
		StringBuilder[] all = new StringBuilder[THREADS];
		Thread[] threads = new Thread[THREADS];
		for (int i = 0; i < THREADS; i++) {
			int number = i;
			StringBuilder own = all[i] = new StringBuilder();
			threads[i] = new Thread(() -> {
				while (!stop) {
					draw(own, secure);
					LENGTHS.set(number, own.length());
				}
			});
			threads[i].start();
		}
		int[] before = goOn(1000);
		flashfork.Flashfork.ready(arguments);
		goOn(20_000);
		stop = true;
		for (int i = 0; i < THREADS; i++) {
			threads[i].join();
			System.out.println("thread " + i + "\n" + all[i].substring(before[i]));
		}
	}
}
