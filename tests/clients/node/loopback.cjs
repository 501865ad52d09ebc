// SPDX-License-Identifier: MIT
// Where the names of docs/migrate lead: no resolver knows them.
const dns = require("node:dns");

const { lookup } = dns;
dns.lookup = (name, options, done) => lookup(name.endsWith(".example.com") ? "127.0.0.1" : name, options, done);
