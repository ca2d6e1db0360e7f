INSERT INTO customer VALUES (NULL, 'ada', 'Turin', 12); INSERT INTO purchase SELECT NULL, max(id), 5, 'open', upper('x') FROM customer;
