#include "plugins/mpi_preload/exchange.hpp"

#include <cstring>
#include <span>
#include <string>

#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "transport/mpi_check_in.hpp"

namespace gradwire::mpi_preload {

std::vector<drop_in::RankSettings> exchange_settings(MPI_Comm comm, int size, const drop_in::RankSettings& mine,
                                                     std::chrono::milliseconds limit, const std::string& hint) {
  const transport::Records records = transport::exchange_records(comm, std::as_bytes(std::span(&mine, 1)), limit);
  if (!records.missing.empty()) {
    throw Error(ErrorCode::timeout, "no answer from " + drop_in::name_ranks(records.missing) + " of " +
                                        std::to_string(size) + " within " + format_duration(limit) + ": " + hint);
  }
  std::vector<drop_in::RankSettings> all(static_cast<std::size_t>(size));
  std::memcpy(all.data(), records.all.data(), records.all.size());
  return all;
}

}  // namespace gradwire::mpi_preload
