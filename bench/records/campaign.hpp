// The trainings of the table of records, and which of them are still to be made. Each writes one file of char_lm, so
// that a campaign that was stopped goes on where it was.
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
  bool own = true;          // also trained with each rank's own part of the data
  double aimed_bits = NAN;  // at most, for an element and hop; NaN: no aim
  double aimed_loss = NAN;  // at most, relative to dense
  bool frozen = false;      // frozen second moment: also compared with dense training under the same guard
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
  std::vector<std::string> only;  // rows by name; none: all. Rows they are compared with are added
};

/// Name of the row with which rows with a frozen second moment are compared, too.
inline constexpr const char* kControl = "frozen";
/// Returns the rows. The first one is the one that all others are compared with.
[[nodiscard]] std::vector<Row> make_rows(const Settings& settings);

/// One training.
struct Run {
  Data data = Data::iid;
  std::string row;
  double rate = 0;
  std::uint64_t seed = 1;
  int steps = 0;
  std::string policy;  // hash of char_lm's arguments for it: a changed row is trained anew

  [[nodiscard]] std::string file() const;  // in the folder, such as "iid-int4-1f0c55aa-2000-lr0.001-s1.json"
};

/// The contents of a file of char_lm.
struct Result {
  double held_out_loss = 0;
  double train_loss = 0;
  double bits = 0;           // sent for each element and hop, frames with headers, after the warm-up
  double bits_in_whole = 0;  // with the warm-up
};

class Campaign {
 public:
  /// Reads the existing files. Throws std::runtime_error that names a file which char_lm did not write.
  explicit Campaign(Settings settings);

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] Run training(Data data, const Row& row, double rate, std::uint64_t seed) const;
  /// The number of seeds with which the row is to be trained.
  [[nodiscard]] int seeds(const Row& row) const;
  [[nodiscard]] const Result* find(const Run& run) const;
  /// The rate with the lowest held-out loss with the first seed; no value if these trainings are not all made. NaN
  /// losses lose.
  [[nodiscard]] std::optional<double> best_rate(Data data, const Row& row) const;
  /// Whether the row is trained with these data.
  [[nodiscard]] static bool wanted(Data data, const Row& row) { return data == Data::iid || row.own; }
  /// The results of the row with its best rate that were made, by seed.
  [[nodiscard]] std::map<std::uint64_t, Result> results(Data data, const Row& row) const;

  /// The next training, in the order that completes a table soonest; no value if all are made.
  [[nodiscard]] std::optional<Run> next() const;
  /// The number of trainings to be made, and of those made.
  struct Count {
    int made = 0, all = 0;
  };
  [[nodiscard]] Count count() const;
  /// The command line of char_lm, without the program.
  [[nodiscard]] std::vector<std::string> arguments(const Run& run) const;

 private:
  /// The trainings with each rate and the first seed.
  [[nodiscard]] std::vector<Run> tunings() const;

  Settings settings_;
  std::vector<Row> rows_;
  std::map<std::string, Result> made_;  // by file
};

}  // namespace gradwire::records
