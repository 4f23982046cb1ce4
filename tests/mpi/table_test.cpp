// Tests tables over real MPI.
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>
#include <vector>

#include "gradwire/mpi.hpp"
#include "tests/support/faulty_transport.hpp"

namespace gradwire::test {
namespace {

TEST(MpiTable, EveryRanksPushesArriveAtEveryRank) {
  for (const Threading threading : {Threading::background, Threading::main_thread}) {
    TableOptions options{.rows = 5000, .width = 16, .learning_rate = 1, .threading = threading};
    options.cache_bytes = 1 << 20;
    options.staleness = 1;
    Table table = mpi::make_table(MPI_COMM_WORLD, options);
    std::vector<std::uint64_t> ids(5000);
    for (std::uint64_t id = 0; id < ids.size(); ++id) {
      ids[id] = id;
    }
    std::vector<float> rows(ids.size() * 16);
    const std::vector<float> gradients(rows.size(), -1.0F);
    for (int step = 0; step < 5; ++step) {
      table.pull(ids, rows);
      table.push(ids, gradients);
      table.tick();
    }
    table.synchronize();
    table.pull(ids, rows);
    for (const float value : rows) {
      ASSERT_EQ(value, 5.0F * static_cast<float>(table.world_size()));
    }
    EXPECT_LE(table.statistics().maximum_age, 1U);
  }
}

TEST(MpiTable, ADifferentWidthIsAnErrorEverywhere) {
  int rank = 0;
  int world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const TableOptions options{.rows = 50, .width = rank == world - 1 ? 8U : 4U};
  try {
    const Table table = mpi::make_table(MPI_COMM_WORLD, options);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
  }
}

TEST(MpiTable, ADamagedRowEndsItEverywhere) {
  using transport::Fault;
  // The second payload from rank 0 to rank 1 holds pushed rows; the first one held options.
  const auto damaged =
      transport::make_faulty(mpi::make_transport(MPI_COMM_WORLD),
                             {{.kind = Fault::Kind::corrupt, .rank = 0, .nth = 1, .peer = 1, .tag = 1, .offset = 999}});
  std::vector<std::uint64_t> ids(1000);
  for (std::uint64_t id = 0; id < ids.size(); ++id) {
    ids[id] = id;
  }
  try {
    Table table(damaged, {.rows = 1000, .width = 8});  // throws if another rank is already further
    if (damaged->rank() == 0) {
      table.push(ids, std::vector<float>(8000, 1.0F));
    }
    table.synchronize();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), damaged->rank() == 1 ? ErrorCode::corrupt : ErrorCode::aborted) << error.what();
    EXPECT_NE(std::string(error.what()).find("checksum"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gradwire::test
