#include "gradwire/statistics.hpp"

#include <cmath>

namespace gradwire {
namespace {

// Adds up measured errors; -1 stands for nothing measured.
double add_measured(double a, double b) {
  if (a < 0 || b < 0) {
    return a < 0 ? b : a;
  }
  return a + b;
}

}  // namespace

void Statistics::add(const Statistics& other) {
  calls += other.calls;
  elements += other.elements;
  bytes_in += other.bytes_in;
  bytes_sent += other.bytes_sent;
  bytes_intra += other.bytes_intra;
  bytes_inter += other.bytes_inter;
  bytes_uncompressed += other.bytes_uncompressed;
  frames_sent += other.frames_sent;
  nonfinite_frames += other.nonfinite_frames;
  encode_seconds += other.encode_seconds;
  decode_seconds += other.decode_seconds;
  wire_seconds += other.wire_seconds;
  total_seconds += other.total_seconds;
  squared_error = add_measured(squared_error, other.squared_error);
  squared_norm = add_measured(squared_norm, other.squared_norm);
}

double Statistics::ratio() const {
  return bytes_sent == 0 ? 1.0 : static_cast<double>(bytes_uncompressed) / static_cast<double>(bytes_sent);
}

double Statistics::relative_error() const {
  if (squared_error < 0 || squared_norm < 0) {
    return -1;
  }
  // Zeros that were reduced without an error have no relative error.
  return squared_error == 0 ? 0 : std::sqrt(squared_error / squared_norm);
}

Statistics SessionStatistics::all() const {
  Statistics sum;
  for (const Group& group : groups) {
    sum.add(group.totals);
  }
  return sum;
}

Statistics SessionStatistics::compressed() const {
  Statistics sum;
  for (const Group& group : groups) {
    if (group.compressed) {
      sum.add(group.totals);
    }
  }
  return sum;
}

}  // namespace gradwire
