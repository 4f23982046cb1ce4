#include "plugins/mpi_preload/exchange.hpp"

#include <cstring>
#include <span>
#include <string>

#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire::mpi_preload {

SettingsExchange::SettingsExchange(MPI_Comm comm, const drop_in::RankSettings& mine)
    : records_(comm, std::as_bytes(std::span(&mine, 1))) {}

std::vector<drop_in::RankSettings> SettingsExchange::finish(std::chrono::milliseconds limit, const std::string& hint) {
  const transport::Records records = records_.finish(limit);
  std::vector<drop_in::RankSettings> all(records.all.size() / sizeof(drop_in::RankSettings));
  if (!records.missing.empty()) {
    throw Error(ErrorCode::timeout, "no answer from " + drop_in::name_ranks(records.missing) + " of " +
                                        std::to_string(all.size()) + " within " + format_duration(limit) + ": " + hint);
  }
  std::memcpy(all.data(), records.all.data(), records.all.size());
  return all;
}

}  // namespace gradwire::mpi_preload
