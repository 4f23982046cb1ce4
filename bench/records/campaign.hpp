// The trainings of the table of records, and which of them are still to be made. Each writes one file of char_lm, so an
// interrupted campaign continues where it was.
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
  bool own = true;          // also trained with a separate part of the data on each rank
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
  std::vector<std::string> only;  // names of rows; empty means all. Rows for comparison are added
};

/// The row with which rows with a frozen second moment are also compared.
inline constexpr const char* kControl = "frozen";
/// Returns the rows. All others are compared with the first one.
[[nodiscard]] std::vector<Row> make_rows(const Settings& settings);

/// One training.
struct Run {
  Data data = Data::iid;
  std::string row;
  double rate = 0;
  std::uint64_t seed = 1;
  int steps = 0;
  std::string policy;  // hash of char_lm's arguments for it, so that a changed row is trained again

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
  /// Returns the number of seeds for the training of the row.
  [[nodiscard]] int seeds(const Row& row) const;
  [[nodiscard]] const Result* find(const Run& run) const;
  /// Returns the rate with the lowest held-out loss with the first seed; no value unless all of these trainings are
  /// made. NaN losses lose.
  [[nodiscard]] std::optional<double> best_rate(Data data, const Row& row) const;
  /// Returns whether the row is trained with these data.
  [[nodiscard]] static bool wanted(Data data, const Row& row) { return data == Data::iid || row.own; }
  /// Returns the existing results of the row with its best rate, by seed.
  [[nodiscard]] std::map<std::uint64_t, Result> results(Data data, const Row& row) const;

  /// Returns the next training, in the order that completes a table soonest; no value if all are made.
  [[nodiscard]] std::optional<Run> next() const;
  /// The number of trainings to be made, and of those made.
  struct Count {
    int made = 0, all = 0;
  };
  [[nodiscard]] Count count() const;
  /// Returns the command line of char_lm, without the program.
  [[nodiscard]] std::vector<std::string> arguments(const Run& run) const;

 private:
  /// Returns the trainings with each rate and the first seed.
  [[nodiscard]] std::vector<Run> tunings() const;

  Settings settings_;
  std::vector<Row> rows_;
  std::map<std::string, Result> made_;  // by file
};

}  // namespace gradwire::records
