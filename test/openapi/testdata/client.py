"""A program over the generated client."""

import sys

from leaderboard_client import AuthenticatedClient
from leaderboard_client.api.scores import get_user_score, list_scores, submit_score
from leaderboard_client.models import Error, ErrorReason, OutcomeStatus, ResultInput

url, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key)

submitted = submit_score.sync(board="default", client=client, body=ResultInput(user_id="py", match_id="m1", points=9))
assert submitted.success and submitted.new_score == 9 and submitted.status == OutcomeStatus.APPLIED, submitted

top = list_scores.sync(board="default", client=client, limit=5)
assert any(entry.user_id == "py" and entry.score == 9 for entry in top.data.leaderboard), top

missing = get_user_score.sync(board="default", user_id="nobody", client=client)
assert isinstance(missing, Error), missing
assert any(getattr(d, "reason", None) == ErrorReason.ENTRY_NOT_FOUND for d in missing.details), missing
print("ok")
