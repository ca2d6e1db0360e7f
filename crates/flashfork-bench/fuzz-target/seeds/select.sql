SELECT p.id, c.name, count(*) FROM purchase p JOIN customer c ON c.id = p.customer JOIN item i ON i.purchase = p.id WHERE c.city = 'Oslo' AND p.state = 'open' GROUP BY p.id ORDER BY c.name LIMIT 5;
