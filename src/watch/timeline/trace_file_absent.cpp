// This file is used in builds without protobuf.
#include "gradwire/error.hpp"
#include "watch/timeline/trace_file.hpp"

namespace gradwire::watch::timeline {

bool can_write_traces() noexcept { return false; }

void write_trace(const Recording& /*recording*/, const Alignment& /*alignment*/, const Timeline& /*timeline*/,
                 std::ostream& /*out*/) {
  throw Error(ErrorCode::unsupported,
              "trace merge: this build of gradwire has no protobuf, which the file is written with; install "
              "libprotobuf-dev and protobuf-compiler (protobuf-devel on rpm systems) and build again. "
              "gradwire trace summary works without");
}

}  // namespace gradwire::watch::timeline
