// Measures the effect of a codec on one layer, and of a policy on all layers of one point of training together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"

namespace gradwire::bench {

/// One gradient at a point of training.
struct Record {
  std::string name;
  std::uint32_t point = 0;
  std::vector<float> values;
};

/// The gradients of a file that char_lm has written (python-free-examples/char_lm/gradient_dump.hpp). Throws an error
/// that names the file.
[[nodiscard]] std::vector<Record> read_records(const std::string& file);

/// Sizes and computing times of one all-reduce, without the link.
struct CallCost {
  double bytes = 0;           // of the message, uncompressed
  double wire_bytes = 0;      // sent by one rank, counted
  double encode_seconds = 0;  // to encode the whole message once, one thread
  double decode_seconds = 0;  // to decode and add it once, one thread
};

struct Row {
  std::uint32_t point = 0;
  std::string layer;  // "all layers" for all of a point
  std::string policy;
  std::string codec;  // chosen by the policy; "mixed" for a point with more than one
  std::uint64_t elements = 0;
  double nominal_ratio = 0;  // bytes of the tensor / bytes of its frame
  double counted_ratio = 0;  // uncompressed / sent, counted at the transport of an all-reduce
  double nmse = 0;           // |decoded - x|^2 / |x|^2 of one encoding
  CallCost cost = {};
};

struct NamedPolicy {
  std::string name;
  Policy policy;
};

/// Makes a policy from "built-in", a codec spec (for every tensor) or a TOML file. Throws Error.
[[nodiscard]] NamedPolicy make_policy(const std::string& text);

/// Returns one row for each layer of `point` (all records of one point), then one for all of them together as a session
/// of `ranks` threads sends them, small tensors fused. All ranks hold the same gradients, since bytes do not depend on
/// values.
[[nodiscard]] std::vector<Row> measure_point(const NamedPolicy& policy, std::span<const Record> point, int ranks);

}  // namespace gradwire::bench
