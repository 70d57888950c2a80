// Submits a result, and logs the top, the player with neighbors, and changes until the player has 25 points.
using System.Collections;
using UnityEngine;

public class LeaderboardDemo : MonoBehaviour
{
    public LeaderboardClient board;

    public IEnumerator Start()
    {
        LeaderboardClient.Answer<LeaderboardClient.Outcome> submitted = null;
        yield return board.Submit(new LeaderboardClient.PointsResult { user_id = "ann/1", points = 15, match_id = "match-1" }, answer => submitted = answer);
        if (!submitted.Ok) { Fail(submitted.status, submitted.reason); yield break; }
        Debug.Log(submitted.data.status + " " + submitted.data.new_score);
        yield return board.Top(2, answer => LogEntries("top", answer.data.leaderboard));
        yield return board.Me("ann/1", 1, answer => LogEntries("me", answer.data.neighbors));
        yield return board.Watch(1, Changed, answer => Fail(answer.status, answer.reason));
    }

    void Changed(LeaderboardClient.Page top)
    {
        LogEntries("live", top.leaderboard);
        if (top.leaderboard[0].user_id == "ann/1") { board.StopWatching(); return; }
        StartCoroutine(board.Submit(new LeaderboardClient.PointsResult { user_id = "ann/1", points = 10, match_id = "match-2" }, answer => { }));
    }

    void LogEntries(string name, LeaderboardClient.Entry[] entries)
    {
        foreach (var entry in entries) Debug.Log(name + ": " + entry.rank + " " + entry.user_id + " " + entry.score);
    }

    void Fail(long status, string reason) { Debug.LogError("failed: " + status + " " + reason); }
}
