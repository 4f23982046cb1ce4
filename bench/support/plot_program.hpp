// Shared by programs that draw a report: two paths, and errors that name the file.
#pragma once

#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/support/report.hpp"

namespace gradwire::bench {

/// Is the main() of `program IN.json OUT.svg`. `draw` makes the SVG from the report that `writer` wrote. Returns the
/// exit status.
template <typename Draw>
int plot_report(int argc, char** argv, const char* program, const char* writer, Draw&& draw) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s IN.json OUT.svg; IN.json is what %s --json wrote\n", program, writer);
    return 2;
  }
  try {
    std::ifstream in(argv[1]);
    if (!in) {
      throw std::runtime_error("cannot read it");
    }
    write_text(argv[2], draw(nlohmann::json::parse(in)));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s: %s\n", program, argv[1], error.what());
    return 1;
  }
}

}  // namespace gradwire::bench
