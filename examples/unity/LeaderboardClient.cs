// A client of a leaderboard server for Unity 2020.2 and newer. Add it to a GameObject.
using System;
using System.Collections;
using System.Globalization;
using System.Text;
using UnityEngine;
using UnityEngine.Networking;

public class LeaderboardClient : MonoBehaviour
{
    public string url = "http://127.0.0.1:8080";
    public string token = ""; // or a key
    public string board = "default";

    const float RetryFor = 120; // seconds
    const float Silence = 20; // servers send an event at least every 15 seconds

    [Serializable] public class Result { public string user_id, match_id, achieved_at; }
    [Serializable] public class PointsResult : Result { public long points; } // for boards with the policies SUM, DECAY and so on
    [Serializable] public class ScoreResult : Result { public long score; } // for boards with the policies BEST, LATEST and FIRST

    [Serializable] public class Outcome { public string status, user_id, match_id, season; public long new_score, rank; }
    [Serializable] public class Entry { public string user_id; public long score, rank; public bool is_current_user; } // rank 0: not available now
    [Serializable] public class Page { public Entry[] leaderboard; public long total; public string season, next_page_token; }
    [Serializable] public class User { public string user_id; public long score, rank; public Entry[] neighbors; }

    public class Answer<T> where T : class
    {
        public long status; // of HTTP, or 0 without an answer
        public string reason; // of an error, such as ENTRY_NOT_FOUND
        public T data; // null after an error
        public bool Ok { get { return data != null; } }
    }

    // Submits a result. It sets match_id and achieved_at if they are empty. Retries send the same values, so the result counts once.
    public IEnumerator Submit(Result result, Action<Answer<Outcome>> done)
    {
        if (string.IsNullOrEmpty(result.match_id)) result.match_id = Guid.NewGuid().ToString();
        if (string.IsNullOrEmpty(result.achieved_at)) result.achieved_at = DateTime.UtcNow.ToString("o", CultureInfo.InvariantCulture);
        return Call("POST", "/scores", JsonUtility.ToJson(result), JsonUtility.FromJson<Outcome>, done);
    }

    // Reads the first entries.
    public IEnumerator Top(int limit, Action<Answer<Page>> done)
    {
        return Call("GET", "/scores?limit=" + limit, null, text => JsonUtility.FromJson<PageAnswer>(text).data, done);
    }

    // Reads the entry of a user, with up to this number of neighbors on each side.
    public IEnumerator Me(string user, int neighbors, Action<Answer<User>> done)
    {
        var path = "/scores/" + Uri.EscapeDataString(user) + "?neighbors=" + neighbors;
        return Call("GET", path, null, text => JsonUtility.FromJson<UserAnswer>(text).data, done);
    }

    // Calls changed with the top now and after each change, until StopWatching. It reconnects after a break. It calls failed and ends
    // if a new connection cannot help.
    public IEnumerator Watch(int limit, Action<Page> changed, Action<Answer<Page>> failed)
    {
        StopWatching();
        var id = watch;
        var backoff = new Backoff();
        while (true)
        {
            var answer = new Answer<Page>();
            float after;
            var events = new Events(page => { if (id == watch) { backoff = new Backoff(); changed(page); } });
            using (var request = NewRequest("GET", "/watch?limit=" + limit, events))
            {
                stream = request;
                request.SendWebRequest();
                while (id == watch && !request.isDone && !events.Ended && Time.realtimeSinceStartup < events.Heard + Silence) yield return null;
                if (id != watch) yield break;
                if (request.responseCode != 200) Read(request, answer, events.LastLine, null);
                after = Mathf.Max(RetryAfter(request), events.RetryAfter);
            }
            var wait = backoff.Next(answer.status, after);
            if (wait < 0) { failed(answer); yield break; }
            yield return new WaitForSecondsRealtime(wait);
            if (id != watch) yield break;
        }
    }

    public void StopWatching() { watch++; }

    void OnDestroy() { if (stream != null) stream.Dispose(); } // Unity has ended the coroutine of Watch

    int watch; // changes with each call of Watch and StopWatching
    UnityWebRequest stream;

    [Serializable] class PageAnswer { public Page data = null; }
    [Serializable] class UserAnswer { public User data = null; }
    [Serializable] class ErrorAnswer { public Detail[] details = null; }
    [Serializable] class Detail { public string reason = null; }

    UnityWebRequest NewRequest(string method, string path, DownloadHandler handler)
    {
        var request = new UnityWebRequest(url + "/v1/boards/" + Uri.EscapeDataString(board) + path, method) { downloadHandler = handler };
        if (token != "") request.SetRequestHeader("Authorization", "Bearer " + token);
        return request;
    }

    IEnumerator Call<T>(string method, string path, string body, Func<string, T> parse, Action<Answer<T>> done) where T : class
    {
        var backoff = new Backoff();
        while (true)
        {
            var answer = new Answer<T>();
            float wait;
            using (var request = NewRequest(method, path, new DownloadHandlerBuffer()))
            {
                if (body != null) request.uploadHandler = new UploadHandlerRaw(Encoding.UTF8.GetBytes(body)) { contentType = "application/json" };
                request.timeout = 30;
                yield return request.SendWebRequest();
                Read(request, answer, request.downloadHandler.text, parse);
                wait = backoff.Next(answer.status, RetryAfter(request));
            }
            if (wait < 0) { done(answer); yield break; }
            yield return new WaitForSecondsRealtime(wait);
        }
    }

    static void Read<T>(UnityWebRequest request, Answer<T> answer, string text, Func<string, T> parse) where T : class
    {
        if (request.result == UnityWebRequest.Result.Success || request.result == UnityWebRequest.Result.ProtocolError) answer.status = request.responseCode;
        try
        {
            if (request.result == UnityWebRequest.Result.Success) answer.data = parse(text);
            else foreach (var detail in JsonUtility.FromJson<ErrorAnswer>(text).details) answer.reason = string.IsNullOrEmpty(detail.reason) ? answer.reason : detail.reason;
        }
        catch (Exception) { } // the answer is not that of a leaderboard server
    }

    static float RetryAfter(UnityWebRequest request)
    {
        float seconds;
        return float.TryParse(request.GetResponseHeader("Retry-After"), NumberStyles.Integer, CultureInfo.InvariantCulture, out seconds) ? Mathf.Max(0, seconds) : 0;
    }

    class Backoff
    {
        readonly float end = Time.realtimeSinceStartup + RetryFor;
        float delay = 0.1f;

        // Returns the seconds until the next attempt, or -1 if it cannot help or would be too late.
        public float Next(long status, float after)
        {
            var wait = after + delay * UnityEngine.Random.Range(0.5f, 1f);
            delay = Mathf.Min(2 * delay, 5);
            return Array.IndexOf(new long[] { 0, 408, 429, 502, 503, 504 }, status) < 0 || Time.realtimeSinceStartup + wait > end ? -1 : wait;
        }
    }

    // Reads server-sent events.
    class Events : DownloadHandlerScript
    {
        public float Heard = Time.realtimeSinceStartup, RetryAfter;
        public bool Ended; // by the server. If the cause lasts, the next connection has an error status.
        public string LastLine { get { return line.ToString(); } } // the last line without an end, such as the body of an error
        readonly Action<Page> changed;
        readonly Decoder decoder = Encoding.UTF8.GetDecoder();
        readonly StringBuilder line = new StringBuilder();

        public Events(Action<Page> changed) { this.changed = changed; }

        protected override bool ReceiveData(byte[] data, int length)
        {
            Heard = Time.realtimeSinceStartup;
            var chars = new char[length + 1];
            foreach (var c in new string(chars, 0, decoder.GetChars(data, 0, length, chars, 0)))
            {
                if (c != '\n') { line.Append(c); continue; }
                var field = LastLine;
                line.Length = 0;
                if (field.StartsWith("event: ", StringComparison.Ordinal)) Ended = true;
                else if (field.StartsWith("retry: ", StringComparison.Ordinal)) RetryAfter = int.Parse(field.Substring(7), CultureInfo.InvariantCulture) / 1000f;
                else if (field.StartsWith("data: ", StringComparison.Ordinal) && !Ended) changed(JsonUtility.FromJson<Page>(field.Substring(6)));
            }
            return true;
        }
    }
}
