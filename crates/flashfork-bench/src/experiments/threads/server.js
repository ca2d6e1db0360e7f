// Fills so many MB with objects, then answers at a port.
const v8 = require('v8');

let live = [];
function fill(megabytes) {
	for (let i = 0; i < megabytes * 12000; i++) live.push({ i, text: `x${i}` });
}
function serve(port) {
	// Not before: a snapshot can't hold it.
	require('http').createServer((_, answer) => {
		answer.setHeader('Connection', 'close');
		answer.end(`${live[live.length - 1].i > 0 ? 1 : 0}\n`);
	}).listen(port, '127.0.0.1');
}
if (v8.startupSnapshot?.isBuildingSnapshot()) {
	fill(+process.env.MEGABYTES);
	v8.startupSnapshot.setDeserializeMainFunction(() => serve(+process.argv[2]));
} else {
	fill(+process.argv[3]);
	serve(+process.argv[2]);
}
