// Tests which saved states are loaded: corrupt bytes and states of another model are errors that change nothing, older
// versions are read, and a save that was cut off leaves the one before.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/durable_file.hpp"
#include "checkpoint_trainer.hpp"
#include "reseal.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

std::string saved_bytes() {
  std::string bytes;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    run_steps(trainer.session, trainer.gradients, 0, 2);
    std::stringstream stream;
    trainer.session.save(stream);
    if (transport->rank() == 0) {
      bytes = stream.str();
    }
  });
  return bytes;
}

std::string load_error(Session& session, const std::string& bytes, ErrorCode code) {
  std::stringstream stream(bytes);
  try {
    session.load(stream);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was loaded";
  return {};
}

TEST(CheckpointFiles, ABadFileIsAnErrorAndChangesNothing) {
  const std::string good = saved_bytes();
  auto world = make_inproc_world(2);
  Trainer trainer(world[0]);
  std::stringstream before;
  trainer.session.save(before);
  const auto expect = [&](const std::string& bytes, ErrorCode code, const char* what) {
    EXPECT_NE(load_error(trainer.session, bytes, code).find(what), std::string::npos) << what;
  };
  expect("", ErrorCode::corrupt, "no saved state of gradwire");
  expect("something else entirely", ErrorCode::corrupt, "no saved state of gradwire");
  expect(good.substr(0, 20), ErrorCode::corrupt, "ends too early");
  expect(good.substr(0, good.size() - 1), ErrorCode::corrupt, "bytes of content but ends after");
  std::string damaged = good;
  damaged[good.size() / 2] = static_cast<char>(damaged[good.size() / 2] ^ 1);
  expect(damaged, ErrorCode::corrupt, "its checksum is wrong");
  std::string newer = good;
  newer[8] = 9;
  expect(newer, ErrorCode::corrupt, "its checksum is wrong");  // the version itself is damaged
  reseal(newer);
  expect(newer, ErrorCode::unsupported, "version 9");
  std::stringstream after;
  trainer.session.save(after);
  EXPECT_EQ(before.str(), after.str());
  std::stringstream stream(good);
  trainer.session.load(stream);
  EXPECT_EQ(trainer.session.step(), 2U);
}

// Version 1 ended after the residuals, version 2 after the late results.
TEST(CheckpointFiles, OlderVersionsAreReadToo) {
  const std::string bytes = saved_bytes();
  constexpr std::size_t kHash = 8;
  constexpr std::size_t kEmptyList = 4;
  for (const int version : {1, 2}) {
    const std::size_t less = (version == 1 ? 3 : 1) * kEmptyList;
    std::string older = bytes.substr(0, bytes.size() - kHash - less) + std::string(kHash, '\0');
    older[8] = static_cast<char>(version);
    std::uint64_t body = 0;
    std::memcpy(&body, older.data() + 16, sizeof body);
    body -= less;
    std::memcpy(older.data() + 16, &body, sizeof body);
    reseal(older);
    auto world = make_inproc_world(2);
    Trainer trainer(world[0]);
    std::stringstream stream(older);
    trainer.session.load(stream);
    std::stringstream again;
    trainer.session.save(again);
    EXPECT_EQ(again.str(), bytes) << version;
  }
}

TEST(CheckpointFiles, AnotherModelIsNamed) {
  const std::string bytes = saved_bytes();
  auto world = make_inproc_world(2);
  std::vector<float> values(10);
  Session session(world[0], Policy());
  session.add("embed.weight", view(values.data(), values.size()));
  const std::string what = load_error(session, bytes, ErrorCode::mismatch);
  EXPECT_NE(what.find("tensor 0 is \"embed.weight\" f32 x 50000 there and \"embed.weight\" f32 x 10 here"),
            std::string::npos)
      << what;
  Trainer other_rank(world[1]);
  EXPECT_NE(load_error(other_rank.session, bytes, ErrorCode::mismatch).find("rank 0 of 2, this is rank 1 of 2"),
            std::string::npos);
}

TEST(CheckpointFiles, ResidualsOfASumAreNotThoseOfAMean) {
  const std::string bytes = saved_bytes();
  auto world = make_inproc_world(2);
  auto gradients = make_gradients();
  Session session(world[0], Policy::parse(kResidualPolicy), {.reduction = Reduction::sum});
  add_all(session, gradients);
  EXPECT_NE(load_error(session, bytes, ErrorCode::mismatch).find("another reduction"), std::string::npos);
}

// Bytes that follow a state in a stream belong to the caller.
TEST(CheckpointFiles, AStreamMayHoldMore) {
  auto transport = make_inproc_world(1)[0];
  Trainer trainer(transport);
  std::stringstream stream;
  trainer.session.save(stream);
  stream << "parameters";
  Trainer other(make_inproc_world(1)[0]);
  other.session.load(stream);
  std::string rest;
  stream >> rest;
  EXPECT_EQ(rest, "parameters");
}

// Mutation tried: a save replaces the files of the previous one, so nothing that can be loaded is left.
TEST(CheckpointFiles, ASaveThatIsCutOffLeavesTheOneBefore) {
  const ScratchFolder folder;
  std::vector<std::string> second(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Trainer trainer(transport);
    for (std::uint64_t step = 0; step < 3; ++step) {
      run_steps(trainer.session, trainer.gradients, step, step + 1);
      if (step == 1) {
        std::stringstream stream;
        trainer.session.save(stream);
        second[rank] = stream.str();
      }
      trainer.session.save(folder.path());
      trainer.session.save(folder.path());  // twice, but the previous save is of another step
    }
  });
  // The files are as if rank 1 had been killed before it wrote its own.
  const std::filesystem::path file = folder.path() / "rank-1-of-2.gradwire";
  ASSERT_TRUE(std::filesystem::exists(previous_of(file)));
  std::filesystem::rename(previous_of(file), file);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    trainer.session.load(folder.path());
    EXPECT_EQ(trainer.session.step(), 2U);
    std::stringstream stream;
    trainer.session.save(stream);
    EXPECT_TRUE(stream.str() == second[static_cast<std::size_t>(transport->rank())]);
  });
  run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    trainer.session.load(folder.path());
    EXPECT_EQ(trainer.session.step(), 2U);
  });
}

// Mutations tried: load() takes the latest step of which all ranks have a file; a save always keeps the previous one.
TEST(CheckpointFiles, SavesOfEarlierStepsCountAndKeepTheWholeOne) {
  const ScratchFolder folder;
  const auto train = [&](bool loads, std::uint64_t from, std::uint64_t to) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Trainer trainer(transport);
      if (loads) {
        trainer.session.load(folder.path());
      }
      EXPECT_EQ(trainer.session.step(), from);
      for (std::uint64_t step = from; step < to; ++step) {
        run_steps(trainer.session, trainer.gradients, step, step + 1);
      }
      trainer.session.save(folder.path());
    });
  };
  const std::filesystem::path file = folder.path() / "rank-1-of-2.gradwire";
  const auto kill_rank_1 = [&] { std::filesystem::rename(previous_of(file), file); };
  train(false, 0, 2);
  train(true, 2, 6);
  kill_rank_1();
  const std::string whole = read_text(file);
  train(true, 2, 4);  // rank 0 had steps 6 and 2, and must have 4 and 2
  ASSERT_TRUE(std::filesystem::exists(previous_of(file)));
  kill_rank_1();
  EXPECT_EQ(read_text(file), whole);
  train(true, 2, 5);
  train(false, 0, 1);  // another job in the same folder
  train(true, 1, 3);
}

TEST(CheckpointFiles, RanksOfDifferentStepsAreToldSo) {
  std::vector<std::string> early(2);
  std::vector<std::string> late(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    Trainer trainer(transport);
    for (auto* saved : {&early, &late}) {
      run_steps(trainer.session, trainer.gradients, trainer.session.step(), trainer.session.step() + 2);
      std::stringstream stream;
      trainer.session.save(stream);
      (*saved)[rank] = stream.str();
    }
  });
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport);
    std::stringstream stream(transport->rank() == 0 ? early[0] : late[1]);
    trainer.session.load(stream);
    run_steps(trainer.session, trainer.gradients, 4, 5);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("step: rank 0 has 2, rank 1 has 4"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace gradwire::test
