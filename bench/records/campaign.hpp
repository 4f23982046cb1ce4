// Which trainings the table of records consists of, and which of them are still to be made: one file of char_lm each,
// so that a campaign that was stopped goes on where it was.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::records {

/// One policy, trained with several rates and seeds.
struct Row {
  std::string name = {};                    // in names of files: letters, digits and '_'
  std::string title = {};                   // in the table
  std::vector<std::string> arguments = {};  // of char_lm
  int seeds = 2;
  bool own = true;          // with each rank's own part of the data, too
  double aimed_bits = NAN;  // an element and hop, at most; NaN: no aim
  double aimed_loss = NAN;  // of dense, at most
  bool frozen = false;      // the second moment is: compared with dense training under the same guard, too
};

/// How the ranks' data are drawn.
enum class Data : std::uint8_t { iid, own };  // from the whole text; each rank from a part of its own
inline constexpr std::array kData{Data::iid, Data::own};
[[nodiscard]] const char* to_string(Data data);

struct Settings {
  std::string folder;  // of the files
  std::vector<double> rates{1e-3, 2e-3, 4e-3};
  int steps = 2000;
  int seeds = 5;                  // at most
  std::vector<std::string> only;  // rows by name; none: all. Those that others are compared with come too
};

/// Of the row with which those with a frozen second moment are compared, too.
inline constexpr const char* kControl = "frozen";
/// The rows, the one that all others are compared with first.
[[nodiscard]] std::vector<Row> make_rows(const Settings& settings);

/// One training.
struct Run {
  Data data = Data::iid;
  std::string row;
  double rate = 0;
  std::uint64_t seed = 1;
  int steps = 0;
  std::string policy;  // hash of what char_lm is told of it: a row that was changed is trained anew

  [[nodiscard]] std::string file() const;  // in the folder, such as "iid-int4-1f0c55aa-2000-lr0.001-s1.json"
};

/// What a file of char_lm tells.
struct Result {
  double held_out_loss = 0;
  double train_loss = 0;
  double bits = 0;           // sent for each element and hop, frames with headers, after the warm-up
  double bits_in_whole = 0;  // with it
};

class Campaign {
 public:
  /// Reads what there is. Throws std::runtime_error that names a file which char_lm did not write.
  explicit Campaign(Settings settings);

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] Run training(Data data, const Row& row, double rate, std::uint64_t seed) const;
  /// With how many seeds it is to be trained.
  [[nodiscard]] int seeds(const Row& row) const;
  [[nodiscard]] const Result* find(const Run& run) const;
  /// The rate with the lowest held-out loss with the first seed; none: they are not all made. NaN losses lose.
  [[nodiscard]] std::optional<double> best_rate(Data data, const Row& row) const;
  /// Whether the row is trained with these data.
  [[nodiscard]] static bool wanted(Data data, const Row& row) { return data == Data::iid || row.own; }
  /// Of the row with its best rate; those that were made, by seed.
  [[nodiscard]] std::map<std::uint64_t, Result> results(Data data, const Row& row) const;

  /// The next training in the order that makes a whole table soonest; none: all are made.
  [[nodiscard]] std::optional<Run> next() const;
  /// How many are to be made, and how many are.
  struct Count {
    int made = 0, all = 0;
  };
  [[nodiscard]] Count count() const;
  /// The command line of char_lm, without the program.
  [[nodiscard]] std::vector<std::string> arguments(const Run& run) const;

 private:
  /// With each rate and the first seed.
  [[nodiscard]] std::vector<Run> tunings() const;

  Settings settings_;
  std::vector<Row> rows_;
  std::map<std::string, Result> made_;  // by file
};

}  // namespace gradwire::records
