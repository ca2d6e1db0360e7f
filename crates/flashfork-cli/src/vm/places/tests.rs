use super::*;

#[test]
fn ports_are_a_pair_and_this_host_s_may_have_an_address() {
	for (text, here, guest) in [
		("8080:80", "127.0.0.1:8080", 80),
		("0:80", "127.0.0.1:0", 80),
		("0.0.0.0:8080:80", "0.0.0.0:8080", 80),
		("[::1]:8080:65535", "[::1]:8080", 65535),
	] {
		assert_eq!(text.parse(), Ok(Ports { here: here.parse().unwrap(), guest }), "{text}");
	}
	for wrong in ["", "80", "80:", ":80", "8080:0", "a:80", "70000:80", "80:70000", "localhost:1:2", "::1:1:2", "-1:2"]
	{
		assert!(wrong.parse::<Ports>().unwrap_err().contains("[ADDRESS:]HOST:GUEST"), "{wrong}");
	}
}

#[test]
fn a_place_is_in_a_clone_or_here() {
	let of = |text: &str| Place::try_from(OsStr::new(text));
	let clone = |name: &str, path: &str| Ok(Place::Clone { name: name.into(), path: path.into() });
	assert_eq!(of("web-1:/etc"), clone("web-1", "/etc"));
	assert_eq!(of("web-1:/a:b"), clone("web-1", "/a:b"));
	for here in ["a", "/a:b", "./a:b", "a/b:c", "."] {
		assert_eq!(of(here), Ok(Place::Here(here.into())), "{here}");
	}
	for (wrong, says) in [
		("", "no path"),
		("a b:/c", "is no name"),
		(":/c", "is no name"),
		("a:", "no absolute path"),
		("a:b", "no absolute path"),
	] {
		assert!(of(wrong).unwrap_err().contains(says), "{wrong}");
	}
}

#[test]
fn a_copy_has_one_end_in_a_clone() {
	let (here, there) = (Place::Here("a".into()), Place::Clone { name: "c".into(), path: "/b".into() });
	assert!(Copy::between(&here, &here).is_none() && Copy::between(&there, &there).is_none());
	assert!(matches!(Copy::between(&there, &here), Some(Copy::FromGuest { clone: "c", .. })));
	assert!(matches!(Copy::between(&here, &there), Some(Copy::ToGuest { clone: "c", .. })));
}
