SELECT substr(note, 1, 8), replace(state, 'p', '_'), printf('%05d|%-8s', placed, state), hex(id) FROM purchase WHERE note LIKE 'am%' AND rowid < 40;
