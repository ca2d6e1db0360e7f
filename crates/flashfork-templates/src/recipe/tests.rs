use super::*;

#[test]
fn a_recipe_comes_back_as_it_was_kept() {
	let moments = [
		None,
		Some(Moment::Itself),
		Some(Moment::Idle(Duration::from_millis(1500))),
		Some(Moment::Listen(None)),
		Some(Moment::Listen(Some(80))),
		Some(Moment::Line("a: b".into())),
	];
	for (threads, max) in moments.into_iter().zip([0, 1, 2, 3, 4, u64::MAX]) {
		let recipe = Recipe {
			command: ["python3", "-c", "import a\nb", ""].map(OsString::from).into(),
			shim: "/lib/shim.so".into(),
			directory: OsString::from_vec(b"/a\xff b".to_vec()).into(),
			ready: Ready::Call,
			threads,
			max_clones: NonZeroU64::new(max),
			renews: max == 1,
			environment: Strings(["A=b=c", "=x", "", "odd", "A=2"].map(OsString::from).into()),
		};
		let kept = Kept::of(&recipe.file().unwrap().into()).unwrap();
		assert_eq!(kept.recipe, Some(recipe));
	}
	assert!(Recipe::read(b"").is_none() && Recipe::read(b"/a\0/b\0auto\0").is_none());
}

#[test]
fn one_at_a_time_makes_it_anew() {
	let recipe = Recipe {
		command: vec!["a".into()],
		shim: "/b".into(),
		directory: "/".into(),
		ready: Ready::Auto,
		threads: None,
		max_clones: None,
		renews: false,
		environment: Strings::default(),
	};
	let (file, name) = (recipe.file().unwrap().into(), "t".parse().unwrap());
	let [first, second] = [0, 1].map(|_| Kept::of(&file).unwrap());
	assert!(first.lock(&name).unwrap() && !second.lock(&name).unwrap());
	drop(first);
	assert!(second.lock(&name).unwrap());
}
