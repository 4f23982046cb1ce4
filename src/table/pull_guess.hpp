// Guesses which rows a rank will pull in its next step. If a step pulled just the rows of an earlier one, the next step
// is likely to pull those that followed then, as in an epoch of the same batches in the same order. Otherwise, if most
// rows of a step were those of the step before, they are likely to come once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "wire/bytes.hpp"

namespace gradwire::table {

class PullGuess {
 public:
  /// `bytes` bounds the memory for the ids of earlier steps, of which the oldest are forgotten first. 0: no guesses.
  explicit PullGuess(std::uint64_t bytes) noexcept : most_bytes_(bytes) {}

  [[nodiscard]] bool on() const noexcept { return most_bytes_ > 0; }
  /// Notes rows that the step under way pulls.
  void add(std::span<const std::uint64_t> ids) { step_.insert(step_.end(), ids.begin(), ids.end()); }
  /// Ends the step. Returns the rows that the next one will probably pull, ascending; none where nothing repeats, or
  /// for some steps after guesses that were mostly wrong.
  [[nodiscard]] std::vector<std::uint64_t> end_step();

  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }      // rows that were guessed and then pulled
  [[nodiscard]] std::uint64_t misses() const noexcept { return misses_; }  // rows that were guessed in vain

 private:
  struct Step {
    std::uint64_t hash;
    std::uint64_t count;  // of ids
    wire::Bytes ids;      // as encode_ids() writes them
    [[nodiscard]] std::uint64_t bytes() const noexcept;
  };

  void score();
  void remember(std::uint64_t hash);
  [[nodiscard]] std::vector<std::uint64_t> ids_after(std::uint64_t hash) const;

  std::uint64_t most_bytes_;
  std::uint64_t bytes_ = 0;
  std::deque<Step> steps_;
  std::uint64_t forgotten_ = 0;                            // steps before the first of steps_
  std::unordered_map<std::uint64_t, std::uint64_t> last_;  // by hash: the number of the last step that had it
  std::vector<std::uint64_t> step_, before_, guess_;       // ids of this step, of the one before, and guessed ones
  std::uint64_t hits_ = 0, misses_ = 0;
  std::uint32_t pause_ = 0, next_pause_ = 1;  // in steps
};

}  // namespace gradwire::table
