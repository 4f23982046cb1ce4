// The table of the parts that every session gets by default. Ranks compare the numbers of the parts in its order.
#include "session/part/part.hpp"
#include "session/parts/auto_batch/auto_batch.hpp"
#include "session/parts/auto_codec/auto_codec.hpp"
#include "session/parts/checkpoints/checkpoints.hpp"
#include "session/parts/notes/notes.hpp"
#include "session/parts/observation/observation.hpp"
#include "session/parts/rank_comparison/rank_comparison_part.hpp"
#include "session/parts/result_comparison/result_comparison.hpp"
#include "session/parts/scales/scale_comparison.hpp"
#include "session/parts/sync_modes/sync_modes_part.hpp"
#include "session/parts/tables/tables_part.hpp"

namespace gradwire::session {

const PartTable& standard_parts() {
  static const auto* const table =  // never destroyed, since sessions may be made at exit, too
      new PartTable{{make_tables, PartMaker::When::with_session},
                    {make_checkpoints, PartMaker::When::with_session},
                    make_scale_comparison,
                    make_sync_modes,
                    make_auto_codec,
                    make_auto_batch,
                    make_result_comparison,
                    {make_rank_comparison, PartMaker::When::with_session},
                    {make_notes, PartMaker::When::with_session},
                    {make_observation, PartMaker::When::with_session}};
  return *table;
}

}  // namespace gradwire::session
