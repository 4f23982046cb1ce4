// What tests of benchmarks read of the files that these write.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

inline nlohmann::json read_json(const std::string& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

}  // namespace gradwire::test
