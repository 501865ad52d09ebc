// SPDX-License-Identifier: MIT
// Where the names of docs/migrate lead: no resolver knows them.
const dns = require("node:dns");

const here = (name) => (name.endsWith(".example.com") ? "127.0.0.1" : name);
const { lookup } = dns;
dns.lookup = (name, options, done) => lookup(here(name), options, done);
const { lookup: promised } = dns.promises;
dns.promises.lookup = (name, options) => promised(here(name), options);
