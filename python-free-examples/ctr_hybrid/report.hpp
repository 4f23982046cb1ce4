// Prints the output of rank 0: a table, also as JSON.
#pragma once

#include <string>
#include <vector>

#include "training.hpp"

namespace ctr_hybrid {

struct Report {
  std::vector<Run> runs;
  TrainingOptions options;
  gradwire::TableOptions table;  // of hybrid training
  std::string data;              // a description
  int ranks = 1;
};

void print_table(const Report& report);
/// Throws std::runtime_error that names a file which cannot be written, like the other functions.
void write_json(const std::string& file, const Report& report);
void write_markdown(const std::string& file, const Report& report);

}  // namespace ctr_hybrid
