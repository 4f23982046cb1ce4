// Reads the output of a benchmark.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace gradwire::test {

inline nlohmann::json read_json(const std::string& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

}  // namespace gradwire::test
