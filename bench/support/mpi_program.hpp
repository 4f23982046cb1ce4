// Shared by benchmarks that are MPI jobs: their main(), and the output of their tables.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <exception>
#include <string>

#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"

namespace gradwire::bench {

/// Runs `body(rank)`, which returns the exit status, in an MPI job. An exception ends all ranks. Blocking calls still
/// work if MPI grants a lower level than `threads`.
template <typename Body>
int mpi_program(const char* name, int argc, char** argv, Body&& body, int threads = MPI_THREAD_MULTIPLE) {
  int provided = 0;
  int rank = 0;
  int status = 0;
  MPI_Init_thread(&argc, &argv, threads, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    status = body(rank);
  } catch (const CommandLineExit& exit) {
    if (rank == 0) {
      print(exit);
    }
    status = exit.status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: rank %d: %s\n", name, rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}

/// Files that a benchmark was asked to write.
struct ReportFiles {
  std::string json;
  std::string markdown;

  void add_to(CommandLine& line) {
    line.option("--json", json, "Write the rows to this file");
    line.option("--markdown", markdown, "Write the table to this file");
  }
  /// Prints the table below the line `head`, and writes the files. Only one rank calls this.
  void tell(const std::string& head, const TextTable& table, const Json& report) const {
    std::printf("%s\n%s", head.c_str(), table.to_text().c_str());
    if (!json.empty()) {
      write_report(json, report);
    }
    if (!markdown.empty()) {
      write_text(markdown, to_document(head, table));
    }
  }
};

}  // namespace gradwire::bench
