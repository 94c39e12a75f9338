"use strict";
/** Asks Tidegate, a rate-limit service, and is never the reason of an outage. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.VERSION = exports.Unavailable = exports.InvalidRequest = exports.Tidegate = exports.Permit = void 0;
var client_js_1 = require("./client.js");
Object.defineProperty(exports, "Permit", { enumerable: true, get: function () { return client_js_1.Permit; } });
Object.defineProperty(exports, "Tidegate", { enumerable: true, get: function () { return client_js_1.Tidegate; } });
var types_js_1 = require("./types.js");
Object.defineProperty(exports, "InvalidRequest", { enumerable: true, get: function () { return types_js_1.InvalidRequest; } });
Object.defineProperty(exports, "Unavailable", { enumerable: true, get: function () { return types_js_1.Unavailable; } });
/** This package's version, which is the binary's. */
exports.VERSION = "0.1.0";
