// Tests that packed files of earlier builds are read for ever.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gradwire/table.hpp"
#include "packed_golden.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/hex.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

std::vector<float> golden_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = i % 2 == 0 ? 0.25F : 0.5F;
  }
  return values;
}

session::SavedState golden_state() {
  session::SavedState state{.step = 3, .fingerprint = "0123456789abcdef", .packed = true};
  const std::vector<float> values = golden_values(400);
  state.tensors = {{"a", values.size(), DType::f32, 1}};
  state.residuals.push_back({{0, codec::EncodeSite::local}, {0, exchange::ResidualStore::Values(std::span(values))}});
  return state;
}

std::string plain_bytes_of(session::SavedState state) {
  state.packed = false;
  std::stringstream stream;
  session::write_state(state, stream);
  return stream.str();
}

TEST(PackedGolden, States) {
  std::stringstream written;
  session::write_state(golden_state(), written);
  SCOPED_TRACE(hex_of(written.str()));
  std::stringstream stream(bytes_of(kPackedState));
  EXPECT_EQ(plain_bytes_of(session::read_state(stream, "a file")), plain_bytes_of(golden_state()));
}

TEST(PackedGolden, Parameters) {
  const ScratchFolder folder;
  const session::CheckpointName name{.step = 3, .world_size = 1, .hash = 5};
  std::vector<float> values = golden_values(400);
  const View all = view(values.data(), values.size());
  const std::vector<ConstView> views{all};
  session::write_checkpoint_parameters(folder.path(), name, views, true);
  const auto file = folder.path() / name.text() / session::kParametersFile;
  SCOPED_TRACE(hex_of(read_text(file)));
  std::ofstream(file, std::ios::binary) << bytes_of(kPackedParameters);
  const auto read = session::read_checkpoint_parameters(folder.path(), name, std::span(&all, 1));
  ASSERT_EQ(read.size(), 1U);
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_TRUE(std::equal(read[0].begin(), read[0].end(), bytes.begin(), bytes.end()));
}

TEST(PackedGolden, Tables) {
  const ScratchFolder folder;
  const auto file = folder.path() / "table-rank-0-of-1.gwtable";
  const std::vector<float> values = golden_values(600);
  std::vector<std::uint64_t> ids(300);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i;
  }
  Table table(make_inproc_world(1)[0], {.rows = ids.size(), .width = 2, .save_packed = true});
  table.assign(ids, values);
  table.save(folder.path());
  SCOPED_TRACE(hex_of(read_text(file)));
  std::ofstream(file, std::ios::binary) << bytes_of(kPackedTable);
  table.assign(ids, std::vector<float>(values.size()));
  table.load(folder.path());
  std::vector<float> rows(values.size());
  table.pull(ids, rows);
  EXPECT_EQ(rows, values);
}

}  // namespace
}  // namespace gradwire::test
