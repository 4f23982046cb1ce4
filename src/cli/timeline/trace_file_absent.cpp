// In builds without protobuf.
#include "cli/timeline/trace_file.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli::timeline {

bool can_write_traces() noexcept { return false; }

void write_trace(const Recording& /*recording*/, const Alignment& /*alignment*/, const Timeline& /*timeline*/,
                 std::ostream& /*out*/) {
  throw Error(ErrorCode::unsupported,
              "trace merge: this build of gradwire has no protobuf, which the file is written with; install "
              "libprotobuf-dev and protobuf-compiler (protobuf-devel on rpm systems) and build again. "
              "gradwire trace summary works without");
}

}  // namespace gradwire::cli::timeline
