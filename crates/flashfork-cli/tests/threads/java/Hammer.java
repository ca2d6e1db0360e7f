import java.security.SecureRandom;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/** Threads that draw without end, wherever they are stopped. Each prints all that it has drawn. */
public class Hammer {
    static volatile boolean stop;

    static void draw(StringBuilder to, SecureRandom[] secure) {
        for (SecureRandom one : secure) to.append(Long.toHexString(one.nextLong())).append(' ');
        to.append(Long.toHexString(ThreadLocalRandom.current().nextLong())).append(' ');
        to.append(Long.toHexString(Double.doubleToLongBits(Math.random()))).append(' ');
        to.append(Long.toHexString(new Random().nextLong())).append(' ');
    }

    public static void main(String[] arguments) throws Exception {
        SecureRandom[] secure = {
            new SecureRandom(), SecureRandom.getInstance("SHA1PRNG"), SecureRandom.getInstance("DRBG")
        };
        StringBuilder[] all = new StringBuilder[4];
        Thread[] threads = new Thread[all.length];
        for (int i = 0; i < all.length; i++) {
            StringBuilder own = all[i] = new StringBuilder();
            threads[i] = new Thread(() -> {
                for (int round = 0; !stop && own.length() < 1 << 22; round++) {
                    draw(own, secure);
                    if (round % 20 == 0) LockSupport.parkNanos(100_000);
                }
            });
            threads[i].start();
        }
        System.out.println("warm");
        System.out.flush();
        Thread.sleep(300);
        stop = true;
        for (int i = 0; i < all.length; i++) {
            threads[i].join();
            System.out.println(all[i]);
        }
    }
}
