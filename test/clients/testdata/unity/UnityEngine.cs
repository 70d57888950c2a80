// The part of Unity that examples/unity uses, over .NET's HTTP client and JSON.
using System;
using System.Collections;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Net;
using System.Runtime.Serialization.Json;
using System.Text;
using System.Threading;
using System.Xml;
using UnityEngine.Networking;

namespace UnityEngine
{
    public class MonoBehaviour
    {
        static readonly List<Stack<IEnumerator>> running = new List<Stack<IEnumerator>>();

        public void StartCoroutine(IEnumerator routine) { running.Add(new Stack<IEnumerator>(new[] { routine })); }

        public static void Run()
        {
            for (; running.Count > 0; Thread.Sleep(1))
            {
                UnityWebRequest.RunCallbacks();
                foreach (var stack in running.ToArray())
                {
                    if (!stack.Peek().MoveNext()) stack.Pop();
                    else if (stack.Peek().Current is IEnumerator) stack.Push((IEnumerator)stack.Peek().Current);
                }
                running.RemoveAll(stack => stack.Count == 0);
            }
        }
    }

    public class WaitForSecondsRealtime : IEnumerator
    {
        readonly float end;
        public WaitForSecondsRealtime(float seconds) { end = Time.realtimeSinceStartup + seconds; }
        public bool MoveNext() { return Time.realtimeSinceStartup < end; }
        public object Current { get { return null; } }
        public void Reset() { }
    }

    public static class Time
    {
        static readonly Stopwatch clock = Stopwatch.StartNew();
        public static float realtimeSinceStartup { get { return (float)clock.Elapsed.TotalSeconds; } }
    }

    public static class Mathf
    {
        public static float Min(float a, float b) { return Math.Min(a, b); }
        public static float Max(float a, float b) { return Math.Max(a, b); }
    }

    public static class Random
    {
        static readonly System.Random random = new System.Random();
        public static float Range(float a, float b) { return a + (b - a) * (float)random.NextDouble(); }
    }

    public static class Debug
    {
        public static void Log(object message) { Console.WriteLine(message); }
        public static void LogError(object message) { Console.WriteLine(message); Environment.ExitCode = 1; }
    }

    public static class JsonUtility
    {
        public static string ToJson(object value)
        {
            var stream = new MemoryStream();
            new DataContractJsonSerializer(value.GetType()).WriteObject(stream, value);
            return Encoding.UTF8.GetString(stream.ToArray());
        }

        public static T FromJson<T>(string text)
        {
            var document = new XmlDocument();
            document.Load(JsonReaderWriterFactory.CreateJsonReader(Encoding.UTF8.GetBytes(text), XmlDictionaryReaderQuotas.Max));
            return (T)Read(document.DocumentElement, typeof(T));
        }

        static object Read(XmlElement value, Type type)
        {
            if (type == typeof(string)) return value.InnerText;
            if (type == typeof(long)) return XmlConvert.ToInt64(value.InnerText);
            if (type == typeof(bool)) return XmlConvert.ToBoolean(value.InnerText);
            if (type.IsArray)
            {
                var array = Array.CreateInstance(type.GetElementType(), value.ChildNodes.Count);
                for (var i = 0; i < array.Length; i++) array.SetValue(Read((XmlElement)value.ChildNodes[i], type.GetElementType()), i);
                return array;
            }
            var result = Activator.CreateInstance(type);
            foreach (var field in type.GetFields())
                if (value[field.Name] != null) field.SetValue(result, Read(value[field.Name], field.FieldType));
            return result;
        }
    }
}

namespace UnityEngine.Networking
{
    public class UploadHandlerRaw
    {
        public readonly byte[] data;
        public string contentType;
        public UploadHandlerRaw(byte[] data) { this.data = data; }
    }

    public abstract class DownloadHandler
    {
        public virtual string text { get { return null; } }
        protected virtual bool ReceiveData(byte[] data, int length) { return true; }
        internal void Receive(byte[] data) { ReceiveData(data, data.Length); }
    }

    public class DownloadHandlerScript : DownloadHandler { }

    public class DownloadHandlerBuffer : DownloadHandler
    {
        readonly MemoryStream received = new MemoryStream();
        public override string text { get { return Encoding.UTF8.GetString(received.ToArray()); } }
        protected override bool ReceiveData(byte[] data, int length) { received.Write(data, 0, length); return true; }
    }

    public class UnityWebRequest : IDisposable
    {
        public enum Result { InProgress, Success, ConnectionError, ProtocolError, DataProcessingError }

        public UploadHandlerRaw uploadHandler;
        public DownloadHandler downloadHandler;
        public int timeout;
        public Result result;
        public long responseCode;
        public bool isDone { get { return result != Result.InProgress; } }

        static readonly ConcurrentQueue<Action> callbacks = new ConcurrentQueue<Action>();
        readonly HttpWebRequest http;
        WebHeaderCollection headers = new WebHeaderCollection();

        public UnityWebRequest(string url, string method)
        {
            http = (HttpWebRequest)WebRequest.Create(url);
            http.Method = method;
        }

        public void SetRequestHeader(string name, string value) { http.Headers[name] = value; }
        public string GetResponseHeader(string name) { return headers[name]; }
        public void Abort() { http.Abort(); }
        public void Dispose() { http.Abort(); }

        public IEnumerator SendWebRequest()
        {
            new Thread(Send) { IsBackground = true }.Start();
            return Wait();
        }

        IEnumerator Wait() { while (!isDone) yield return null; }

        internal static void RunCallbacks()
        {
            Action callback;
            while (callbacks.TryDequeue(out callback)) callback();
        }

        void Send()
        {
            try
            {
                if (uploadHandler != null)
                {
                    http.ContentType = uploadHandler.contentType;
                    using (var body = http.GetRequestStream()) body.Write(uploadHandler.data, 0, uploadHandler.data.Length);
                }
                HttpWebResponse response;
                try { response = (HttpWebResponse)http.GetResponse(); }
                catch (WebException e) when (e.Response != null) { response = (HttpWebResponse)e.Response; }
                callbacks.Enqueue(() => { responseCode = (long)response.StatusCode; headers = response.Headers; });
                var buffer = new byte[4096];
                for (int n; (n = response.GetResponseStream().Read(buffer, 0, buffer.Length)) > 0;)
                {
                    var part = buffer.Take(n).ToArray();
                    callbacks.Enqueue(() => downloadHandler.Receive(part));
                }
                callbacks.Enqueue(() => result = responseCode < 400 ? Result.Success : Result.ProtocolError);
            }
            catch (Exception) { callbacks.Enqueue(() => result = Result.ConnectionError); }
        }
    }
}

class Program
{
    static void Main()
    {
        var board = new LeaderboardClient { url = Environment.GetEnvironmentVariable("LEADERBOARD_URL"), token = Environment.GetEnvironmentVariable("LEADERBOARD_KEY") };
        var demo = new LeaderboardDemo { board = board };
        demo.StartCoroutine(demo.Start());
        UnityEngine.MonoBehaviour.Run();
    }
}
