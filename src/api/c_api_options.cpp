// Converts options of gradwire.h to C++. NULL stands for a struct of zeros, and 0 for the default of C, which for the
// algorithm of a call is not that of C++ (docs/reference/defaults.md).
#include "api/c_api.hpp"

namespace gradwire::api {
namespace {

Algorithm algorithm_of(gradwire_algorithm algorithm, const char* function) {
  switch (algorithm) {
    case GRADWIRE_ALGORITHM_DEFAULT:
    case GRADWIRE_TWO_SHOT: return Algorithm::two_shot;
    case GRADWIRE_ONE_SHOT: return Algorithm::one_shot;
    case GRADWIRE_DENSE: return Algorithm::dense;
    case GRADWIRE_HIERARCHICAL: return Algorithm::hierarchical;
    case GRADWIRE_ALGORITHM_AUTO: return Algorithm::automatic;
  }
  refuse(function, "algorithm", algorithm, "one of gradwire_algorithm, such as GRADWIRE_TWO_SHOT");
}

Nonfinite nonfinite_of(gradwire_nonfinite nonfinite, const char* function) {
  switch (nonfinite) {
    case GRADWIRE_NONFINITE_DEFAULT: return Nonfinite::automatic;
    case GRADWIRE_PROPAGATE: return Nonfinite::propagate;
    case GRADWIRE_SKIP: return Nonfinite::skip;
  }
  refuse(function, "nonfinite", nonfinite, "GRADWIRE_PROPAGATE or GRADWIRE_SKIP");
}

}  // namespace

CallOptions call_options_of(const gradwire_call_options* given, const char* function) {
  const gradwire_call_options known = read_struct(given, "gradwire_call_options");
  CallOptions options;
  if (known.codec != nullptr) {
    options.codec = CodecSpec::parse(known.codec);
  }
  if (known.second_hop != nullptr) {
    options.second_hop = CodecSpec::parse(known.second_hop);
  }
  if (known.intra_codec != nullptr) {
    options.intra_codec = CodecSpec::parse(known.intra_codec);
  }
  options.algorithm = algorithm_of(known.algorithm, function);
  options.reduction = reduction_of(known.reduction, Reduction::sum, function);
  options.feedback = known.feedback == nullptr ? nullptr : &known.feedback->buffer;
  return options;
}

CommunicatorOptions communicator_options_of(const gradwire_communicator_options* given, const char* function) {
  const gradwire_communicator_options known = read_struct(given, "gradwire_communicator_options");
  CommunicatorOptions options{.timeout = timeout_of(known.timeout_ms, function),
                              .checksum = switch_of(known.checksum, function, "checksum")};
  if (known.ranks_per_node != 0) {
    options.ranks_per_node = known.ranks_per_node;
  }
  return options;
}

SessionOptions session_options_of(const gradwire_session_options* given, const char* function) {
  const gradwire_session_options known = read_struct(given, "gradwire_session_options");
  SessionOptions options;
  options.reduction = reduction_of(known.reduction, Reduction::mean, function);
  options.timeout = timeout_of(known.timeout_ms, function);
  options.checksum = switch_of(known.checksum, function, "checksum");
  options.nonfinite = nonfinite_of(known.nonfinite, function);
  options.compare_ranks_every = known.compare_ranks_every;
  return options;
}

}  // namespace gradwire::api
