# The commands of the README. What they do is in xtask/; this file only names it.
.DEFAULT_GOAL := help
.PHONY: help run test setup fmt lint audit docs fuzz pauses bench capacity dist clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## builds, then starts everything on embedded defaults; Ctrl-C drains and stops it
	cargo run --release --locked --package tidegate -- serve

test: setup lint ## everything that CI runs: installs what is missing, all checks, all tests
	cargo xtask deny
	cargo xtask fuzz --seconds 5
	cargo xtask test
	cargo xtask clients
	@# Behind the others, whose binary has no Kafka.
	cargo clippy --workspace --locked --features tidegate/kafka --test kafka --test intake_kafka -- -D warnings
	cargo test --workspace --locked --no-fail-fast --features tidegate/kafka --test kafka --test intake_kafka

setup: ## installs the Debian packages, Python packages and tools that are missing
	cargo xtask setup

fmt: ## formats the code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

lint: ## formatting, clippy, documentation, the rules of the house
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@# With --examples cargo chooses features as for tests, and takes what clippy has checked.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --lib --bin xtask --examples --no-deps --locked --document-private-items
	cargo xtask tidy
	cargo xtask clients --lint
	cargo xtask console --lint

audit: ## dependencies against the advisory database (needs the network)
	cargo xtask deny --all

docs: ## the code's documentation, in target/doc
	cargo doc --workspace --no-deps --locked

fuzz: ## every parser for a minute
	cargo xtask fuzz --seconds 60

pauses: setup ## the tests of sockets and stores, while single threads stand still for up to a second
	cargo xtask pauses

bench: setup ## the table of docs/benchmarks.md, against nginx, throttlecrab and Redis
	cargo xtask bench

capacity: setup ## where this machine's tidegate saturates, and why: docs/capacity.md
	cargo xtask capacity

dist: ## the binary to ship, and its debug information apart: target/dist
	cargo xtask dist

clean: ## removes what was built, not what was installed
	cargo clean
	cargo clean --manifest-path fuzz/Cargo.toml
