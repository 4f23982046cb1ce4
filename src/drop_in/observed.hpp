// What an observing job saw of its own calls: plain numbers that ranks add up and from which forecasts are made.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "drop_in/calls.hpp"

namespace gradwire::drop_in {

/// Calls that are observed together.
struct ObservedClass {
  Function function = Function::other;
  DType dtype = DType::f32;
  std::uint8_t size = 0;  // size_class() of their bytes
  int communicator_size = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): the check warns about the comparison that clang generates
  friend auto operator<=>(const ObservedClass&, const ObservedClass&) = default;
};

/// The effect of a codec on samples of a job's values.
struct SampledValues {
  std::uint64_t samples = 0;
  double bytes = 0;        // of the values
  double frame_bytes = 0;  // of the encoded values
  double encode_seconds = 0;
  double decode_seconds = 0;
  double elements = 0;       // number of elements that are not zero
  double zeroed = 0;         // number of these that decode to zero
  double squared_error = 0;  // summed over all elements
  double squared_norm = 0;
  double small_squared_error = 0;  // over the half of the elements that is smaller than the rest
  double small_squared_norm = 0;

  void add(const SampledValues& other);
};

/// One class, of one rank or of several.
struct ObservedTotals {
  /// The library's own calls of about one size: a class has four, by the two bits below its highest.
  struct Size {
    std::uint64_t calls = 0;
    double bytes = 0;          // summed, as the seconds are
    double seconds = 0;        // in the job, waiting for late ranks included
    double quick_seconds = 0;  // of a call that waited little: the lower quartile, on the rank with the lowest one

    void add(const Size& other);
  };
  /// Real messages of such a call, made while nothing else ran, on the slowest rank.
  struct Transfer {
    double dense_bytes = 0;  // of the call that dense_seconds belong to
    double dense_seconds = 0;
    double frame_bytes = 0;  // of the frames that a rank sent
    double frame_seconds = 0;
  };
  std::array<Size, 4> sizes{};
  std::string codec = {};  // the codec that would be used; empty: none
  SampledValues sampled = {};
  std::optional<Transfer> transfer = {};

  void add(const ObservedTotals& other);
  [[nodiscard]] std::uint64_t calls() const;
  [[nodiscard]] double bytes() const;
  [[nodiscard]] double seconds() const;
};

/// The observations of one rank, or of all ranks.
struct Observed {
  /// One machine, as its ranks see it.
  struct Host {
    int ranks = 0;
    int cores = 1;
  };
  std::map<ObservedClass, ObservedTotals> classes;
  std::map<std::string, Host> hosts;  // by identity
  double run_seconds = 0;             // of the rank that observed longest
  double cost_seconds = 0;            // of observing, on the rank where it took longest

  void add(const Observed& other);
  [[nodiscard]] std::string to_text() const;
  /// The inverse of to_text(). Throws what nlohmann::json throws of other text.
  [[nodiscard]] static Observed from_text(const std::string& text);
};

}  // namespace gradwire::drop_in
