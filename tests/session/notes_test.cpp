#include "session/parts/notes/notes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

using session::Notes;
using ::testing::HasSubstr;

TEST(Notes, KeepTheLatestNumberOfEachNameAlsoWhereAllAreTaken) {
  Notes notes;
  for (std::size_t i = 0; i < Notes::kMost; ++i) {
    notes.note("n" + std::to_string(i), 1);
  }
  notes.note("n3", 7);
  EXPECT_THAT(error_of([&] { notes.note("loss", 1); }).what(), HasSubstr("note: loss is one name too many"));
  EXPECT_THAT(error_of([&] { notes.note("my loss", 1); }).what(), HasSubstr("note: \"my loss\" is no name"));
  EXPECT_THAT(error_of([&] { notes.note(std::string(41, 'a'), 1); }).what(), HasSubstr("is no name"));
  observe::Snapshot snapshot;
  notes.add_to(snapshot);
  ASSERT_EQ(snapshot.knowledge.notes.size(), Notes::kMost);
  for (const auto& [name, value] : snapshot.knowledge.notes) {
    EXPECT_EQ(value, name == "n3" ? 7 : 1) << name;
  }
}

}  // namespace
}  // namespace gradwire::test
