// Prints the output of rank 0: progress while training, and a table at the end, also as JSON.
#pragma once

#include <string>
#include <vector>

#include "text.hpp"
#include "training.hpp"

namespace char_lm {

enum class ProgressStyle { bar, lines, none };

/// Prints the progress of a run: a bar that redraws itself, or about ten lines for each run.
class ProgressPrinter {
 public:
  ProgressPrinter(std::string name, ProgressStyle style) : name_(std::move(name)), style_(style) {}
  void operator()(const Progress& now);

 private:
  std::string name_;
  ProgressStyle style_;
  int tenths_ = 0;  // of the run, printed so far
};

/// Prints what will be trained, and on which link.
void print_introduction(const Text& text, const TrainingOptions& options, int world_size);
void print_table(const std::vector<RunResult>& rows, int world_size);

/// For runs with several seeds: a policy's held-out loss against dense training with the same seed.
struct PairedLoss {
  std::string policy;
  int seeds = 0;
  double mean_ratio = 0;
  double standard_error = 0;
  double largest_ratio = 0;
};
[[nodiscard]] std::vector<PairedLoss> pair_losses(const std::vector<RunResult>& rows);
void print_paired(const std::vector<PairedLoss>& losses);

/// Writes {schema, machine, run, rows}. Throws std::runtime_error that names the file.
void write_json(const std::string& file, const std::vector<RunResult>& rows, const Text& text,
                const TrainingOptions& options, int world_size);

}  // namespace char_lm
