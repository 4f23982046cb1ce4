// A small check program: it records comparisons and differences, writes rows for tests/gpu/check, and exits with 0, 1
// or 77. It replaces GoogleTest, which a bare GPU machine does not have.
//   program [--seed N] [--rows FILE] [--small] [--budget SECONDS] [--only TEXT,..]
// A row is one line of --rows: name, value, unit, aim, verdict (ok, short, failed, skipped, info) and note, separated
// by tabs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/dtype.hpp"

namespace gradwire::gpu {

inline constexpr int kPassed = 0;
inline constexpr int kFailed = 1;
inline constexpr int kSkipped = 77;

class Check {
 public:
  Check(std::string_view program, int argc, char** argv)
      : program_(program), started_(std::chrono::steady_clock::now()) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view option = argv[i];
      if (option == "--small") {
        small_ = true;
      } else if (i + 1 < argc && option == "--seed") {
        seed_ = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 0));
      } else if (i + 1 < argc && option == "--budget") {
        budget_s_ = std::strtod(argv[++i], nullptr);
      } else if (i + 1 < argc && option == "--only") {
        only_ = argv[++i];
      } else if (i + 1 < argc && option == "--rows") {
        rows_.open(argv[++i], std::ios::app);
      } else {
        std::fprintf(
            stderr,
            "%s: unknown option \"%s\"; there are --seed N, --rows FILE, --budget SECONDS, --only TEXT, --small\n",
            program_.c_str(), argv[i]);
        std::exit(kFailed);
      }
    }
    std::printf("%s: seed %u%s\n", program_.c_str(), seed_, small_ ? ", small" : "");
  }

  [[nodiscard]] unsigned seed() const { return seed_; }
  [[nodiscard]] bool small() const { return small_; }
  [[nodiscard]] double elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }
  /// Returns whether --only names this part, or nothing.
  [[nodiscard]] bool is_wanted(const std::string& name) const {
    for (std::size_t begin = 0; begin <= only_.size();) {
      const std::size_t end = std::min(only_.find(',', begin), only_.size());
      if (name.find(only_.substr(begin, end - begin)) != std::string::npos) {
        return true;
      }
      begin = end + 1;
    }
    return false;
  }
  /// Returns whether about `seconds` more still fit into --budget.
  [[nodiscard]] bool fits(double seconds) const { return budget_s_ <= 0 || elapsed_s() + seconds < budget_s_; }
  [[nodiscard]] long comparisons() const { return comparisons_; }
  [[nodiscard]] long failures() const { return failures_; }

  bool that(bool condition, const std::string& what) {
    ++comparisons_;
    if (!condition) {
      fail(what);
    }
    return condition;
  }

  /// Compares bytes of a frame, or of other data with only one correct value.
  bool same_bytes(std::span<const std::byte> got, std::span<const std::byte> wanted, const std::string& what) {
    ++comparisons_;
    if (got.size() != wanted.size()) {
      fail(what + ": " + std::to_string(got.size()) + " bytes instead of " + std::to_string(wanted.size()));
      return false;
    }
    if (got.empty() || std::memcmp(got.data(), wanted.data(), got.size()) == 0) {
      return true;
    }
    std::size_t first = got.size();
    std::size_t different = 0;
    for (std::size_t i = got.size(); i-- > 0;) {
      if (got[i] != wanted[i]) {
        first = i;
        ++different;
      }
    }
    char text[160];
    std::snprintf(text, sizeof text, ": %zu of %zu bytes differ, the first is byte %zu: 0x%02x instead of 0x%02x",
                  different, got.size(), first, std::to_integer<unsigned>(got[first]),
                  std::to_integer<unsigned>(wanted[first]));
    fail(what + text);
    return false;
  }

  /// Compares elements of a tensor: they must have the same bytes, or be NaN, whose bits depend on the processor.
  bool same_elements(DType dtype, std::span<const std::byte> got, std::span<const std::byte> wanted,
                     const std::string& what) {
    const std::size_t unit = element_bytes(dtype);
    ++comparisons_;
    if (got.size() != wanted.size()) {
      fail(what + ": another number of elements");
      return false;
    }
    std::size_t first = 0;
    std::size_t different = 0;
    for (std::size_t at = 0; at < got.size(); at += unit) {
      if (std::memcmp(&got[at], &wanted[at], unit) != 0 && !(is_nan(dtype, &got[at]) && is_nan(dtype, &wanted[at]))) {
        first = different == 0 ? at / unit : first;
        ++different;
      }
    }
    if (different == 0) {
      return true;
    }
    char text[160];
    std::snprintf(text, sizeof text, ": %zu of %zu elements differ, the first is element %zu: 0x%llx instead of 0x%llx",
                  different, got.size() / unit, first, bits(dtype, &got[first * unit]),
                  bits(dtype, &wanted[first * unit]));
    fail(what + text);
    return false;
  }

  void row(const std::string& name, const std::string& value, std::string_view unit, const std::string& aim,
           std::string_view verdict, const std::string& note = "") {
    const std::string wanted = aim.empty() ? "" : ", aim " + aim;
    std::printf("%s: %s: %s %s%s [%s] %s\n", program_.c_str(), name.c_str(), value.c_str(), std::string(unit).c_str(),
                wanted.c_str(), std::string(verdict).c_str(), note.c_str());
    std::fflush(stdout);
    if (rows_.is_open()) {
      rows_ << name << '\t' << value << '\t' << unit << '\t' << aim << '\t' << verdict << '\t' << note << '\n'
            << std::flush;
    }
  }

  /// Runs one part of the program, unless --only names others or the budget is spent. An exception is a failure, and
  /// gives false. With --rows, the part is a row.
  template <class Body>
  bool part(const std::string& name, Body&& body) {
    if (!is_wanted(name)) {
      return true;
    }
    if (!fits(0)) {
      row(name, "", "", "", "skipped", "no time left");
      return true;
    }
    bool threw = false;
    const long comparisons = comparisons_;
    const long failures = failures_;
    const double begun = elapsed_s();
    try {
      body();
    } catch (const std::exception& error) {
      fail(name + ": threw: " + error.what());
      threw = true;
    }
    char note[64];
    std::snprintf(note, sizeof note, "%.1f s", elapsed_s() - begun);
    const bool good = failures_ == failures && comparisons_ > comparisons;
    if (comparisons_ == comparisons && failures_ == failures) {
      fail(name + ": compared nothing");
    }
    row(name,
        std::to_string(comparisons_ - comparisons - (failures_ - failures)) + " of " +
            std::to_string(comparisons_ - comparisons),
        "equal", "all", good ? "ok" : "failed", note);
    return !threw;
  }

  /// For all ranks but one.
  void write_no_rows() { rows_.close(); }

  void fail(const std::string& what) {
    if (++failures_ <= kShown) {
      std::printf("%s: FAILED: %s\n", program_.c_str(), what.c_str());
    } else if (failures_ == kShown + 1) {
      std::printf("%s: FAILED: further ones are only counted\n", program_.c_str());
    }
    std::fflush(stdout);
  }

  /// Prints the result in a line, and returns the program's exit status.
  [[nodiscard]] int finish() {
    if (comparisons_ == 0) {
      fail("nothing was compared");
    }
    std::printf("%s: %s: %ld comparisons, %ld failed, seed %u, %.1f s\n", program_.c_str(),
                failures_ == 0 ? "passed" : "FAILED", comparisons_, failures_, seed_, elapsed_s());
    return failures_ == 0 ? kPassed : kFailed;
  }
  [[nodiscard]] int skip(const std::string& why) {
    row(program_, "", "", "", "skipped", why);
    return kSkipped;
  }

 private:
  static constexpr long kShown = 20;

  [[nodiscard]] static unsigned long long bits(DType dtype, const std::byte* element) {
    unsigned long long value = 0;
    std::memcpy(&value, element, element_bytes(dtype));  // little-endian
    return value;
  }
  [[nodiscard]] static bool is_nan(DType dtype, const std::byte* element) {
    const unsigned long long value = bits(dtype, element);
    switch (dtype) {
      case DType::f32: return (value & 0x7fffffffULL) > 0x7f800000ULL;
      case DType::f16: return (value & 0x7fffULL) > 0x7c00ULL;
      case DType::bf16: return (value & 0x7fffULL) > 0x7f80ULL;
      case DType::f64: return (value & ~(1ULL << 63)) > 0x7ff0000000000000ULL;
    }
    return false;
  }

  std::string program_;
  std::chrono::steady_clock::time_point started_;
  std::ofstream rows_;
  unsigned seed_ = 1;
  double budget_s_ = 0;
  bool small_ = false;
  std::string only_;
  long comparisons_ = 0;
  long failures_ = 0;
};

}  // namespace gradwire::gpu
