UPDATE item SET quantity = quantity + 1, remark = 'seen' WHERE product = 7 AND quantity < 5; SELECT changes();
