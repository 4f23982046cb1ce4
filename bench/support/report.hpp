// Makes the JSON that every benchmark writes: {schema, machine, rows, ...}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace gradwire::bench
