// Decides which rows other ranks, the relays, answer in place of the owner, so that no rank has to answer much more
// than its share. It neither communicates nor holds rows.
//
// An owner counts the rows that others ask it for in a sketch. Ticks tell every rank how many rows each rank answers.
// An owner that answers more than its share announces the rows that it is asked for most. The other ranks are in groups
// of about the square root of their number. One rank of each group, another one for each row, is the relay: it asks the
// owner, and the others ask the relay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "table/row_sketch.hpp"

namespace gradwire::table {

class RelayedRows {
 public:
  static constexpr std::uint64_t kMost = 256;  // announced rows of an owner

  /// This rank announces `most` rows at most. The seed is that of the sketch.
  RelayedRows(int rank, int world_size, std::uint32_t most, std::uint64_t seed);

  /// Counts rows of this rank that `peer` asks for.
  void count_asked(int peer, std::span<const std::uint64_t> ids);
  /// Counts rows that this rank answers as a relay.
  void count_relayed(std::size_t rows) noexcept { answered_now_ += rows; }

  /// What a tick tells the other ranks.
  struct Note {
    std::uint64_t answered = 0;                                // rows since the last tick
    std::optional<std::vector<std::uint64_t>> announced = {};  // ascending, if they have changed
  };
  /// Ends a clock of this rank. Now and then it decides which rows to announce.
  [[nodiscard]] Note end_clock();
  /// Takes the note of another rank, at this rank's `clock`.
  void take(int owner, const Note& note, std::uint64_t clock);

  /// The rank to ask for a row of `owner`, which is not this rank: the owner, unless a relay's answer as of clock
  /// `needed` is known to have all of this rank's writes, or `own_writes` says that it need not.
  [[nodiscard]] int rank_to_ask(int owner, std::uint64_t id, std::uint64_t needed, bool own_writes) const noexcept;
  /// Whether any row is announced by others. Only then note_write() needs to be called.
  [[nodiscard]] bool any() const noexcept { return known_count_ > 0; }
  /// This rank writes to a row of `owner` at its `clock`.
  void note_write(int owner, std::uint64_t id, std::uint64_t clock) noexcept;

  /// The relay of a row for `reader`: the reader itself asks the owner.
  [[nodiscard]] int relay_of(int owner, std::uint64_t id, int reader) const noexcept;

 private:
  // Rows with the latest clock at which this rank may have written to them.
  using Known = std::map<std::uint64_t, std::uint64_t>;

  [[nodiscard]] std::vector<std::uint64_t> choose();
  [[nodiscard]] bool announced(std::uint64_t id) const noexcept;

  const int rank_;
  const int world_size_;
  const int group_;  // ranks
  const std::uint32_t most_;
  RowSketch sketch_;
  std::unordered_set<std::uint64_t> candidates_;  // rows that were asked for often
  std::vector<std::uint64_t> announced_;          // ascending
  std::uint64_t answered_now_ = 0;                // since the last tick
  std::vector<std::uint64_t> answered_;           // rows of late, by rank
  std::uint64_t clocks_ = 0;
  std::vector<Known> known_;  // announced by others, by owner
  std::size_t known_count_ = 0;
};

}  // namespace gradwire::table
