BEGIN; DELETE FROM purchase WHERE customer = 3 AND state = 'cancelled'; SELECT total_changes(); ROLLBACK;
