// Makes the JSON that every benchmark writes: {schema, machine, rows, ...}; prints and writes what a benchmark found.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/support/text_table.hpp"

namespace gradwire::bench {

using Json = nlohmann::ordered_json;

/// Returns CPU, cores, memory, kernel, compiler, version, revision and date, without host names and paths. `mpi` is the
/// library's version text, or empty.
[[nodiscard]] Json describe_machine(const std::string& mpi = {});

/// Returns {schema, machine, rows: []}; `schema` is a text such as "gradwire.bench_all_reduce.1".
[[nodiscard]] Json make_report(const std::string& schema, const std::string& mpi = {});

/// Returns a number, or null if it is NaN: "not known" must not read as a value.
[[nodiscard]] Json number_or_null(double value);

/// Throws std::runtime_error that names the file.
void write_text(const std::string& file, const std::string& text);
void write_report(const std::string& file, const Json& report);

/// Names the files of a benchmark's results; an empty name: that file is not written.
struct ResultFiles {
  std::string markdown;
  std::string json = {};
};
/// Prints `head`, a blank line and the table, and writes both as a Markdown document, and `report` as JSON.
void publish(const std::string& head, const TextTable& table, const ResultFiles& files, const Json& report = {});

}  // namespace gradwire::bench
